"""RLDS episodes in TFRecord files, read without TensorFlow."""
