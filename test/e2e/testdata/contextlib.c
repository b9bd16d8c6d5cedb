/*
 * Has the thread-local variable of context.c. PAD is what else each thread needs, in bytes. With
 * HIDDEN, relocations do not name the variable.
 */
#ifdef PAD
static __thread char pad[PAD];
#endif
__thread void *volatile otel_thread_ctx_v1;
#ifdef HIDDEN
extern __thread void *volatile variable
	__attribute__((alias("otel_thread_ctx_v1"), visibility("hidden")));
#else
#define variable otel_thread_ctx_v1
#endif

void attach(void *record)
{
#ifdef PAD
	pad[0]++;
#endif
	variable = record;
}
