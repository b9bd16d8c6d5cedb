// Frames runs Java whose stacks tests compare with samples. It prints a line of JSON first.
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.function.IntUnaryOperator;

public class Frames {
    static volatile long sink;

    // spin works for ever, in compiled code once HotSpot has replaced the running loop.
    static void spin() {
        long sum = 0;
        while (true) {
            for (int i = 0; i < 1000; i++) {
                sum = sum * 31 + i;
            }
            sink = sum;
        }
    }

    static final List<String> noted = new ArrayList<>();
    static CountDownLatch latch;

    // note notes the stack of its caller.
    static void note() {
        StringBuilder s = new StringBuilder("[");
        StackWalker.getInstance(StackWalker.Option.SHOW_HIDDEN_FRAMES).forEach(f -> {
            String method = f.getMethodName();
            if (f.getClassName().equals("Frames") && method.equals("note")) {
                return;
            }
            s.append(s.length() > 1 ? "," : "").append("[\"").append(f.getClassName()).append('.').append(method)
                .append("\",\"").append(f.getFileName()).append("\",").append(f.getLineNumber()).append(']');
        });
        synchronized (noted) {
            noted.add(s.append(']').toString());
        }
        latch.countDown();
    }

    static void burn() {
        note();
        spin();
    }

    interface Shape {
        int area(int n);
    }

    static class Square implements Shape {
        final int side;

        Square(int side) {
            this.side = side;
            if (side == 77) {
                burn();
            }
        }

        public int area(int n) {
            if (n == 0) {
                burn();
            }
            return side * side;
        }
    }

    static int recurse(int n, Shape s) {
        return n == 0 ? s.area(0) : recurse(n - 1, s) + 1;
    }

    static synchronized void locked() {
        burn();
    }

    static void thrown() {
        try {
            throw new IllegalStateException();
        } catch (IllegalStateException e) {
            burn();
        } finally {
            sink++;
        }
    }

    static final class Initialized {
        static {
            burn();
        }

        static void touch() {
        }
    }

    static void fünf() {
        burn();
    }

    static void thread(Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        t.start();
    }

    static void threads() throws Exception {
        List<Runnable> work = List.of(
            Frames::burn,
            () -> recurse(10, new Square(3)),
            () -> new Square(77),
            Frames::locked,
            Frames::thrown,
            Initialized::touch,
            Frames::fünf,
            () -> new ArrayList<>(List.of(3, 1, 2)).sort((x, y) -> {
                burn();
                return x - y;
            }),
            () -> List.of(1, 2, 3).stream().map(x -> x + 1).forEach(x -> burn()),
            () -> {
                try {
                    Frames.class.getDeclaredMethod("burn").invoke(null);
                } catch (ReflectiveOperationException e) {
                    throw new RuntimeException(e);
                }
            });
        latch = new CountDownLatch(work.size());
        work.forEach(Frames::thread);
        latch.await();
        new PrintStream(System.out, true, StandardCharsets.UTF_8).println("{\"Noted\":[" + String.join(",", noted) + "]}");
        Thread.sleep(Long.MAX_VALUE / 1000000);
    }

    static int innermost(int n) {
        int sum = n;
        for (int i = 0; i < 2000; i++) {
            sum = sum * 31 + (sum >>> 3) + i;
        }
        return sum;
    }

    static int middle(int n) {
        return innermost(n) + 1;
    }

    static int apply(IntUnaryOperator f, int n) {
        return f.applyAsInt(n);
    }

    static int around(int n) {
        return apply(Frames::middle, n);
    }

    static void hot() {
        long until = System.nanoTime() + 3_000_000_000L;
        int n = 0;
        while (System.nanoTime() < until) {
            n = around(n);
        }
        sink = n;
        System.out.println("{}");
        System.out.flush();
        while (true) {
            sink = around((int) sink);
        }
    }

    // deep waits below n frames, and works in those that HotSpot brings back then.
    static void deep(int n) throws InterruptedException {
        if (n > 0) {
            deep(n - 1);
            return;
        }
        while (true) {
            Thread.sleep(1);
            for (int i = 0; i < 200; i++) {
                sink = innermost((int) sink);
            }
        }
    }

    static void virtual() throws Exception {
        Runnable work = () -> {
            try {
                deep(20);
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        };
        Thread t = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work); // Java 21
        System.out.println("{}");
        System.out.flush();
        t.join();
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("threads")) {
            threads();
        } else if (args[0].equals("virtual")) {
            virtual();
        } else {
            hot();
        }
    }
}
