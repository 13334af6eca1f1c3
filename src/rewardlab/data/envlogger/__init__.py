"""EnvLogger logs in Riegeli files, read without the riegeli library."""
