package offline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile/report"
)

// Each format of a report has the findings of the same rules.
func TestReport(t *testing.T) {
	input := filepath.Join(t.TempDir(), "in.folded")
	if err := os.WriteFile(input, []byte("app;main;hot 900\napp;main;cold 100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const says = "takes 90.0 %"
	for format, want := range map[string]string{"text": "  hot takes 90.0 %", "md": "- ` hot ` takes 90.0 %", "json": `"rule": "hot_function"`} {
		var out, stderr strings.Builder
		code, err := Report(t.Context(), ReportOptions{Input: input, Functions: 1, Format: format, Stdout: &out, Stderr: &stderr})
		if err != nil || code != 0 {
			t.Fatalf("%s: exit code %d, %v", format, code, err)
		}
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), says) {
			t.Errorf("%s: got\n%s\nwant %q", format, &out, want)
		}
		if format == "json" {
			var r report.Report
			if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.Version != 1 || len(r.Functions) != 1 || len(r.Paths) != 2 {
				t.Errorf("got %+v, %v; want version 1 with a function and two paths", r, err)
			}
		}
	}
	if code, err := Report(t.Context(), ReportOptions{Input: input, Value: "cpu"}); code != 2 || err == nil {
		t.Errorf("an unknown value: got exit code %d, %v, want 2", code, err)
	}
}
