"""The data factory: failures and near misses made of successes, each with where it comes from and who judged it."""
