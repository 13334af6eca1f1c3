"""The language of robot instructions: lexicon, parser, translations."""
