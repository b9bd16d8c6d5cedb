import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;
import java.util.Optional;

/**
 * C's qsort calls back a Java method (Java 22). Reflection is enough for that, so that Java 17
 * compiles this.
 */
class Upcalls {
    static volatile int sink;

    static int compare(Object a, Object b) {
        int x = 1;
        for (int i = 0; i < 3000; i++) {
            x = x * 31 + (i ^ x >>> 3);
        }
        sink += x;
        return x & 1;
    }

    static Class<?> type(String name) throws Exception {
        return Class.forName("java.lang.foreign." + name);
    }

    static Object layouts(String... names) throws Exception {
        Object list = Array.newInstance(type("MemoryLayout"), names.length);
        for (int i = 0; i < names.length; i++) {
            Array.set(list, i, type("ValueLayout").getField(names[i]).get(null));
        }
        return list;
    }

    public static void main(String[] args) throws Throwable {
        Class<?> linkerType = type("Linker"), segment = type("MemorySegment"), descriptor = type("FunctionDescriptor");
        Class<?> arenaType = type("Arena"), layout = type("MemoryLayout"), option = type("Linker$Option");
        Object linker = linkerType.getMethod("nativeLinker").invoke(null), options = Array.newInstance(option, 0);
        Object lookup = linkerType.getMethod("defaultLookup").invoke(linker);
        Object arena = arenaType.getMethod("global").invoke(null);
        Object address = ((Optional<?>) type("SymbolLookup").getMethod("find", String.class).invoke(lookup, "qsort")).get();
        Object signature = descriptor.getMethod("ofVoid", layout.arrayType())
            .invoke(null, layouts("ADDRESS", "JAVA_LONG", "JAVA_LONG", "ADDRESS"));
        MethodHandle qsort = (MethodHandle) linkerType.getMethod("downcallHandle", segment, descriptor, option.arrayType())
            .invoke(linker, address, signature, options);
        Object result = Array.get(layouts("JAVA_INT"), 0);
        Object callback = descriptor.getMethod("of", layout, layout.arrayType())
            .invoke(null, result, layouts("ADDRESS", "ADDRESS"));
        MethodHandle compare = MethodHandles.lookup()
            .findStatic(Upcalls.class, "compare", MethodType.methodType(int.class, Object.class, Object.class))
            .asType(MethodType.methodType(int.class, segment, segment));
        Object stub = linkerType.getMethod("upcallStub", MethodHandle.class, descriptor, arenaType, option.arrayType())
            .invoke(linker, compare, callback, arena, options);
        Object array = arenaType.getMethod("allocate", long.class).invoke(arena, 4000L);
        System.out.println("{}");
        System.out.flush();
        while (true) {
            qsort.invokeWithArguments(array, 1000L, 4L, stub);
        }
    }
}
