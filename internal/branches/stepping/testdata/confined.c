/* Computes under strict seccomp: read, write, exit and sigreturn alone are
   allowed. */
#include <linux/seccomp.h>
#include <sys/prctl.h>

volatile unsigned long x;

int main(void)
{
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 1;
	for (;;)
		for (int i = 0; i < 1000; i++)
			if (i % 3)
				x += (unsigned long)i;
}
