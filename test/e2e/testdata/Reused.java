// Reused runs classes of the same shape, one after the other, and unloads each: HotSpot uses
// the memory of their methods again. A class runs in a thread that has its name.
import java.io.InputStream;
import java.lang.reflect.Constructor;

public class Reused {
    static final class Loader extends ClassLoader {
        Class<?> define(byte[] b) {
            return defineClass(null, b, 0, b.length);
        }
    }

    // made returns the bytes of Made0000 with another number in its names.
    static byte[] made(byte[] template, String number) {
        byte[] b = template.clone();
        for (int i = 0; i + 4 <= b.length; i++) {
            if (b[i] == '0' && b[i + 1] == '0' && b[i + 2] == '0' && b[i + 3] == '0') {
                for (int j = 0; j < 4; j++) {
                    b[i + j] = (byte) number.charAt(j);
                }
            }
        }
        return b;
    }

    static void run(byte[] template, String number) throws Exception {
        Constructor<?> constructor = new Loader().define(made(template, number)).getDeclaredConstructor();
        constructor.setAccessible(true); // another loader's package
        Thread t = new Thread((Runnable) constructor.newInstance(), "made " + number);
        t.start();
        t.join();
    }

    public static void main(String[] args) throws Exception {
        byte[] template;
        try (InputStream in = Reused.class.getResourceAsStream("/Made0000.class")) {
            template = in.readAllBytes();
        }
        for (int i = 1; i <= 40; i++) {
            run(template, Integer.toString(1000 + i));
            System.gc();
        }
    }
}

class Made0000 implements Runnable {
    long sum;

    public void run() {
        long end = System.nanoTime() + 50_000_000;
        while (System.nanoTime() < end) {
            run0000();
        }
    }

    void run0000() {
        for (int i = 0; i < 1000; i++) {
            inner0000(i);
        }
    }

    void inner0000(int n) {
        for (int i = 0; i < 10; i++) {
            sum = sum * 31 + n + i;
        }
    }
}
