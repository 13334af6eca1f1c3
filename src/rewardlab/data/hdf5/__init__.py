"""HDF5 files of demonstrations, as robomimic, robosuite and LIBERO write them."""
