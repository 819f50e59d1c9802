"""The whole of it, as a user has it: `outrider up`, real programs, plain HTTP."""
