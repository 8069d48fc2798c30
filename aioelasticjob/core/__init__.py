"""What is decided, without waiting and without reading a clock: facts go in, effects and commands come out."""
