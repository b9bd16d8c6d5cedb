package events

import (
	"strings"
	"testing"
)

func TestUnsafeReturns(t *testing.T) {
	var c, v8, java unsafeReturns
	for name, at := range map[string]uint64{"_setjmp@@GLIBC_2.2.5": 1, "dlsym": 2, "__cxa_throw": 3, "malloc": 4} {
		c.add(name, at)
	}
	v8.add("Builtins_JSEntry", 1)
	java.add("JNI_CreateJavaVM@@SUNWprivate_1.1", 1)
	for _, test := range []struct {
		in   *unsafeReturns
		of   function
		want string // in the reason
	}{
		{&c, function{name: "alias_of_setjmp", addr: 1}, "crash"},
		{&c, function{name: "dlsym", addr: 2}, "caller"},
		{&c, function{name: "__cxa_throw", addr: 3}, "walks the stack"},
		{&c, function{name: "malloc", addr: 4}, ""},
		{&c, function{name: "_ZN2v88internal1fEv", addr: 5}, ""},
		{&v8, function{name: "_ZN2v88internal1fEv", addr: 5}, "V8"},
		{&v8, function{name: "Builtins_ArrayMap", addr: 6}, "V8"},
		{&v8, function{name: "uv_run", addr: 7}, ""},
		{&java, function{name: "_ZN11OptoRuntime11new_array_CEv", addr: 5}, "Java"},
		{&java, function{name: "JVM_MonitorWait", addr: 6}, ""},
	} {
		got := test.in.why(test.of)
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: got the reason %q, want one with %q", test.of.name, got, test.want)
		}
	}
}
