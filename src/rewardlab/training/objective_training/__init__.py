"""Training one contrastive backbone with one objective after the other, and comparing what comes out; needs torch."""
