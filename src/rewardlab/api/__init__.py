"""The Python API: the verbs of the command line as functions, and the options they take."""
