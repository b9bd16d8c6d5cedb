package sides

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
)

// Fields of any interval have columns, and no text is obeyed by a terminal.
func TestLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.Local)
	got := Lines([]profile.SlowInterval{
		{Begin: at, Length: 148854 * time.Microsecond, Running: 383 * time.Microsecond, Runnable: 147652 * time.Microsecond, PID: 42, TID: 43, Comm: "postgres"},
		{Begin: at, Length: time.Millisecond, Comm: "é\x1b", Fields: []profile.Label{{Key: "query", Value: "SELECT\n1"}, {Key: "n", Value: "2"}}},
	})
	want := []string{
		"slowest began        length   running    runnable   waiting  thread          query      n",
		"03:04:05.000006  148.854 ms  0.383 ms  147.652 ms  0.819 ms  postgres-42/43",
		`03:04:05.000006    1.000 ms  0.000 ms    0.000 ms  1.000 ms  é\x1b           SELECT\n1  2`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, strings.Join(got, "\n"))
	}
	if Lines(nil) != nil {
		t.Error("got lines for no intervals")
	}
}
