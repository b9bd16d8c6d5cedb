# Functions that a sweep understands, and others that must be left out.
	.text
	.globl good
	.type good, @function
good:
	test %edi, %edi
	je 1f
	call callee
	jmp 2f
1:	lea table(%rip), %rax
	jmp *(%rax,%rdi,8)
2:	ret
3:	jmp 3b
	.size good, .-good

	.type callee, @function
callee:
	jne 1f
	nop
1:	ret
	.size callee, .-callee

	# Its jump leads into what looks like a call.
	.type skips, @function
skips:
	jmp 1f
	.byte 0xe8
1:	nop
	nop
	nop
	nop
	ret
	.size skips, .-skips

	.type unknown, @function
unknown:
	nop
	.byte 0x06
	ret
	.size unknown, .-unknown

	.type outer, @function
	.type inner, @function
outer:
	nop
inner:
	nop
	ret
	.size outer, .-outer
	.size inner, .-inner

	# Its last instruction is cut off.
	.type cut, @function
cut:
	nop
	.byte 0xe9, 0
	.size cut, .-cut

	.type sized, @function
sized:
	mov $0x90909090, %eax
	ret
	.size sized, .-sized

	# Enters callee's jump.
	.type enters, @function
enters:
	jmp callee + 1
	.size enters, .-enters

	# The call passes the address of the text, which looks like jumps.
	.type inline, @function
inline:
	call 1f
	.ascii "trust"
	nop
1:	pop %rax
	ret
	.size inline, .-inline

	.data
table:	.quad 0
