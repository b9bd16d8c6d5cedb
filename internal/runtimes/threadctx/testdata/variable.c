/*
 * Defines the thread-local variable, and uses it unless UNUSED is defined. The relocation of the
 * OTHER one, which is static, has no symbol.
 */
struct record;
__thread struct record *otel_thread_ctx_v1;
#ifdef OTHER
static __thread int before = 3;

int count(void)
{
	return before++;
}
#endif

#ifndef UNUSED
void set(struct record *r)
{
	otel_thread_ctx_v1 = r;
}
#endif

#ifdef MAIN
int main(void)
{
	set(0);
	return 0;
}
#endif
