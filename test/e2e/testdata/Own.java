import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.Deflater;

/**
 * Prints "ready", and waits until its standard input ends. Then calls tasks in a random order until
 * it has used the CPU for as many seconds as the argument says, and prints the CPU time of each task
 * in microseconds, without that of tasks that it calls. Tasks need functions of the JVM: they
 * allocate memory.
 */
public class Own {
	static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
	static final Map<String, Long> OWN = new TreeMap<>();
	static final ArrayDeque<long[]> INNER = new ArrayDeque<>(); // the CPU time of tasks that were called
	static final byte[] DATA = new byte[30000], ROOM = new byte[40000];
	static long state = 88172645463325252L;
	static volatile Object kept;
	static volatile long sum;

	static int random(int n) {
		state ^= state << 13;
		state ^= state >>> 7;
		state ^= state << 17;
		return (int) Long.remainderUnsigned(state, n);
	}

	static void own_arrays() {
		kept = new long[100000];
	}

	static void own_matrix() {
		kept = new byte[60][3000];
	}

	static void own_loop() {
		long sum = 0;
		for (int i = 0; i < 100000; i++)
			sum += i % 7;
		Own.sum = sum;
	}

	static void own_outer() {
		long sum = 0;
		for (int i = 0; i < 50000; i++)
			sum += i % 7;
		call("own_arrays", Own::own_arrays);
		Own.sum = sum;
	}

	static void deflate() {
		Deflater d = new Deflater();
		d.setInput(DATA);
		d.finish();
		sum = d.deflate(ROOM);
		d.end();
	}

	static void call(String name, Runnable task) {
		long begin = THREADS.getCurrentThreadCpuTime();
		long[] inner = {0};
		INNER.push(inner);
		for (int i = 0; i < (name.equals("own_outer") ? 1 : 4); i++)
			task.run();
		INNER.pop();
		long took = THREADS.getCurrentThreadCpuTime() - begin;
		OWN.merge(name, took - inner[0], Long::sum);
		if (!INNER.isEmpty())
			INNER.peek()[0] += took;
	}

	public static void main(String[] args) throws Exception {
		for (int i = 0; i < DATA.length; i++)
			DATA[i] = (byte) (i * i % 251);
		System.out.println("ready");
		while (System.in.read() >= 0)
			continue;
		List<Map.Entry<String, Runnable>> tasks = new ArrayList<>();
		tasks.add(Map.entry("own_arrays", Own::own_arrays));
		tasks.add(Map.entry("own_matrix", Own::own_matrix));
		tasks.add(Map.entry("own_loop", Own::own_loop));
		tasks.add(Map.entry("own_outer", Own::own_outer));
		long end = THREADS.getCurrentThreadCpuTime() + (long) (1e9 * Double.parseDouble(args[0]));
		while (THREADS.getCurrentThreadCpuTime() < end) {
			Map.Entry<String, Runnable> task = tasks.get(random(tasks.size()));
			call(task.getKey(), task.getValue());
			deflate();
		}
		StringBuilder b = new StringBuilder();
		OWN.forEach((name, time) -> b.append(b.length() > 0 ? "," : "").append("\"Own.").append(name).append("\":").append(time / 1000));
		System.out.println("{" + b + "}");
	}
}
