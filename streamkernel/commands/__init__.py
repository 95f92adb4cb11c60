"""The commands of the command line, by purpose."""
