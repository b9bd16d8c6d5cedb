	.text
	.globl	in_assembler
	.type	in_assembler, @function
in_assembler:
#if defined(__x86_64__)
	mov	%edi, %eax
	add	$1, %eax
	nop
	ret
#else
	add	w0, w0, #1
	nop
	ret
#endif
	.size	in_assembler, .-in_assembler
	.section .note.GNU-stack,"",%progbits
