package localhttp

import (
	"os"
	"strings"
	"testing"
)

func environment(vars map[string]string) func(string) string {
	return func(key string) string { return vars[key] }
}

func TestPrintSSHCommand(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		env     map[string]string
		address string
		want    string
	}{
		{nil, "127.0.0.1:4000", "ssh -L 4000:127.0.0.1:4000 " + name + "\n"},
		{map[string]string{"USER": "root", "SUDO_USER": "me"}, "127.0.0.1:4000", "ssh -L 4000:127.0.0.1:4000 me@" + name + "\n"},
		{map[string]string{"USER": "me", "SSH_CONNECTION": "10.0.0.9 40000 10.0.0.1 22"}, "[::1]:4000", "ssh -L 4000:[::1]:4000 me@10.0.0.1\n"},
		{nil, "10.0.0.1:4000", ""},
	} {
		var b strings.Builder
		printSSHCommand(&b, test.address, environment(test.env))
		if !strings.Contains(b.String(), test.want) || (test.want == "") != (b.Len() == 0) {
			t.Errorf("%v, %s: got %q, want %q", test.env, test.address, b.String(), test.want)
		}
	}
}
