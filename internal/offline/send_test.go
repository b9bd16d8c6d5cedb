package offline

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/export/otlptest"
)

// TestSend checks that a URL receives what a file would hold.
func TestSend(t *testing.T) {
	in, file := filepath.Join(t.TempDir(), "in.folded"), filepath.Join(t.TempDir(), "out.otlp")
	if err := os.WriteFile(in, []byte("app;main;work 3\napp;main;rest 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	convert := func(to string) (messages string, code int, err error) {
		var stderr bytes.Buffer
		code, err = Convert(t.Context(), ConvertOptions{Input: in, Output: to, Stderr: &stderr})
		return stderr.String(), code, err
	}
	if messages, code, err := convert(file); code != 0 || err != nil || messages != "" {
		t.Fatalf("got code %d, error %v, messages %q", code, err, messages)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := otlptest.NewReceiver(t, nil)
	if messages, code, err := convert(r.HTTP()); code != 0 || err != nil || messages != "" {
		t.Errorf("got code %d, error %v, messages %q", code, err, messages)
	}
	if got := r.Accepted(); len(got) != 1 || !bytes.Equal(got[0].Body, want) {
		t.Errorf("got requests %v, want the file's %d bytes", got, len(want))
	}
	r = otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply { return otlptest.Reply{Rejected: 1, Message: "no\x1b room"} })
	if _, code, err := convert(r.HTTP()); code != 1 || err == nil || !strings.Contains(err.Error(), `rejected 1 profile: no\x1b room`) {
		t.Errorf("got code %d, error %v", code, err)
	}
	r = otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply { return otlptest.Reply{Message: "old version"} })
	if messages, code, err := convert(r.HTTP()); code != 0 || err != nil || !strings.Contains(messages, "old version") {
		t.Errorf("got code %d, error %v, messages %q", code, err, messages)
	}
	for _, o := range []ConvertOptions{{Output: "http://"}, {Output: "http://127.0.0.1:1", Format: "svg"}, {Output: "http://user:pw@127.0.0.1:1"}} {
		o.Input = in
		if code, err := Convert(t.Context(), o); err == nil {
			t.Errorf("%+v: got code %d and no error", o, code)
		}
	}
}
