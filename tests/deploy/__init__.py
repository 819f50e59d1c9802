"""The files of deploy/, with the programs that read them."""
