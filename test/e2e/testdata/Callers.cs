// A loop with callers, of which Mono's generated code keeps no frame pointers.
using System.Runtime.CompilerServices;

class Callers
{
	[MethodImpl(MethodImplOptions.NoInlining)]
	static int Inner(int n)
	{
		int sum = 0;
		for (int i = 0; i < n; i++)
			sum = sum * 31 + i;
		return sum;
	}

	[MethodImpl(MethodImplOptions.NoInlining)]
	static int Outer(int n) { return Inner(n) + 1; }

	static int Main()
	{
		int sum = 0;
		for (int i = 0; i < 2000; i++)
			sum += Outer(500000);
		return sum == 0 ? 1 : 0;
	}
}
