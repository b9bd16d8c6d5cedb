import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordedMethod;
import jdk.jfr.consumer.RecordingFile;

/**
 * Prints "ready", and waits until its standard input ends. Then thread "shares" calls tasks in a
 * random order, each for a fraction of a millisecond, until it has used the CPU for as many seconds
 * as the argument says, while JFR samples it. Then prints the CPU time of each task, in ns, and
 * JFR's samples by task and leaf method.
 */
public class Shares {
	static long state = 88172645463325252L;
	static volatile long kept;

	static long random() {
		state ^= state << 13;
		state ^= state >>> 7;
		state ^= state << 17;
		return state;
	}

	static long fibonacci(int n) {
		return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
	}

	static long sieve(boolean[] composite) {
		java.util.Arrays.fill(composite, false);
		long primes = 0;
		for (int i = 2; i < composite.length; i++) {
			if (composite[i])
				continue;
			primes++;
			for (int j = 2 * i; j < composite.length; j += i)
				composite[j] = true;
		}
		return primes;
	}

	static long step(long n) {
		return n % 2 == 0 ? n / 2 : 3 * n + 1;
	}

	static long collatz() {
		long steps = 0;
		for (int i = 1; i < 500; i++) {
			for (long n = i; n > 1; n = step(n))
				steps++;
		}
		return steps;
	}

	static long words(Map<String, Integer> counts, String[] words) {
		for (int i = 0; i < 4000; i++)
			counts.merge(words[(int) (random() & 63)], 1, Integer::sum);
		return counts.size();
	}

	static long text() {
		StringBuilder b = new StringBuilder();
		for (int i = 0; i < 4000; i++)
			b.append(i).append(' ');
		return b.length();
	}

	static long sort(int[] values) {
		for (int i = 0; i < values.length; i++)
			values[i] = (int) random();
		java.util.Arrays.sort(values);
		return values[0];
	}

	static long repeat(long value, long factor) {
		for (int i = 0; i < 500; i++)
			value = value * factor ^ value >>> 7;
		return value;
	}

	interface Operator {
		long apply(long value);
	}

	static class Three implements Operator {
		public long apply(long value) { return repeat(value, 3); }
	}

	static class Five implements Operator {
		public long apply(long value) { return repeat(value, 5) + 1; }
	}

	static class Seven implements Operator {
		public long apply(long value) { return repeat(value, 7) ^ 1; }
	}

	static long apply(Operator[] operators, long value) {
		for (int i = 0; i < 150; i++)
			value = operators[i % 3].apply(value);
		return value;
	}

	static final Map<String, Long> spent = new TreeMap<>();

	static void work(long seconds) {
		ThreadMXBean threads = ManagementFactory.getThreadMXBean();
		boolean[] composite = new boolean[30000];
		int[] values = new int[2500];
		Map<String, Integer> counts = new HashMap<>();
		String[] words = new String[64];
		for (int i = 0; i < words.length; i++)
			words[i] = "word " + i;
		Operator[] operators = { new Three(), new Five(), new Seven() };
		long now = threads.getCurrentThreadCpuTime(), end = now + seconds * 1_000_000_000L;
		while (now < end) {
			String task;
			switch ((int) ((random() & Integer.MAX_VALUE) % 7)) {
			case 0: task = "fibonacci"; kept += fibonacci(22); break;
			case 1: task = "sieve"; kept += sieve(composite); break;
			case 2: task = "collatz"; kept += collatz(); break;
			case 3: task = "words"; kept += words(counts, words); break;
			case 4: task = "text"; kept += text(); break;
			case 5: task = "sort"; kept += sort(values); break;
			default: task = "apply"; kept += apply(operators, kept); break;
			}
			long then = now;
			now = threads.getCurrentThreadCpuTime();
			spent.merge("Shares." + task, now - then, Long::sum);
		}
	}

	static String name(RecordedMethod method) {
		return method.getType().getName() + "." + method.getName();
	}

	/** Returns the number of JFR's samples by task and leaf method. */
	static Map<String, Long> samples(Path file) throws Exception {
		Map<String, Long> samples = new TreeMap<>();
		for (RecordedEvent e : RecordingFile.readAllEvents(file)) {
			if (!"shares".equals(e.getThread("sampledThread").getJavaName()))
				continue;
			List<RecordedFrame> frames = e.getStackTrace().getFrames();
			for (int i = frames.size() - 1; i >= 0; i--) {
				String task = name(frames.get(i).getMethod());
				if (spent.containsKey(task)) {
					samples.merge(task + " " + name(frames.get(0).getMethod()), 1L, Long::sum);
					break;
				}
			}
		}
		return samples;
	}

	static String json(Map<String, Long> counts) {
		return counts.entrySet().stream().map(e -> '"' + e.getKey() + "\": " + e.getValue())
			.collect(Collectors.joining(", ", "{", "}"));
	}

	public static void main(String[] args) throws Exception {
		Thread thread = new Thread(() -> work(Long.parseLong(args[0])), "shares");
		System.out.println("ready");
		while (System.in.read() >= 0) {
		}
		Path file = Files.createTempFile("shares", ".jfr");
		try (Recording recording = new Recording()) {
			recording.enable("jdk.ExecutionSample").withPeriod(Duration.ofMillis(1));
			recording.start();
			thread.start();
			thread.join();
			recording.stop();
			recording.dump(file);
			System.out.printf("{\"own\": %s, \"jfr\": %s}%n", json(spent), json(samples(file)));
		} finally {
			Files.delete(file);
		}
	}
}
