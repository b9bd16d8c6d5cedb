// Go accepts functions without a body next to assembler.
