package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"fulgur/internal/profile/report"
	"fulgur/internal/testenv"
)

// assistant starts fulgur mcp on a folder, and returns what calls its tools.
func assistant(t *testing.T, dir string, flags ...string) func(tool string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cmd := exec.Command(program(t), append([]string{"mcp", dir}, flags...)...)
	cmd.Stderr = os.Stderr
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("end fulgur mcp: %v", err)
		}
	})
	return func(tool string, arguments map[string]any) (string, bool) {
		t.Helper()
		result, err := session.CallTool(context.WithoutCancel(t.Context()), &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return err.Error(), true
		}
		var b strings.Builder
		for _, c := range result.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				b.WriteString(text.Text)
			}
		}
		return b.String(), result.IsError
	}
}

// An assistant asks about a profile, and gets no other file than those of its folder.
func TestAssistantAsks(t *testing.T) {
	parallel(t)
	top := t.TempDir()
	dir := filepath.Join(top, "profiles")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"a.folded": "app;main;hot 90\napp;main;cold 10\n", "../outside.folded": "app;secret 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.folded": "../outside.folded", "pipe.folded": "/dev/stdin"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	call := assistant(t, dir)
	text, failed := call("files", map[string]any{})
	var list struct{ Files []struct{ Name string } }
	if err := json.Unmarshal([]byte(text), &list); err != nil || failed || len(list.Files) != 1 || list.Files[0].Name != "a.folded" {
		t.Errorf("files: got %s, %v, want a.folded alone", text, err)
	}
	text, failed = call("ask", map[string]any{"file": "a.folded", "question": "callees", "function": "main", "rows": 1})
	var answer report.Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || failed || len(answer.Rows) != 1 || answer.Rows[0].Function != "hot" || answer.Rows[0].Amount != 90 || answer.More != 1 {
		t.Errorf("callees of main: got %s, %v, want hot with 90 and 1 more", text, err)
	}
	text, failed = call("report", map[string]any{"file": "a.folded"})
	var described report.Report
	if err := json.Unmarshal([]byte(text), &described); err != nil || failed || described.Version != report.Version || len(described.Functions) != 2 {
		t.Errorf("report: got %s, %v, want two functions", text, err)
	}
	for _, refused := range []map[string]any{
		{"file": "../outside.folded", "question": "functions"},
		{"file": filepath.Join(top, "outside.folded"), "question": "functions"},
		{"file": "link.folded", "question": "functions"},
		{"file": "pipe.folded", "question": "functions"},
		{"file": ".", "question": "functions"},
		{"file": "missing", "question": "functions"},
		{"file": "a.folded", "question": "--output=x"},
		{"file": "a.folded", "question": "callers"},
		{"file": "a.folded", "question": "callers", "function": "nosuch"},
		{"file": "a.folded", "question": "callers", "function": "--output=x"},
		{"file": "a.folded", "question": "functions", "value": "nosuch"},
	} {
		if text, failed := call("ask", refused); !failed || strings.Contains(text, "secret") {
			t.Errorf("%v: got %q, want an error", refused, text)
		}
	}
	for _, refused := range []map[string]any{
		{"file": "../new", "seconds": 1}, {"file": "new", "seconds": 61}, {"file": "new", "seconds": 0}, {"file": "new", "seconds": 1, "frequency": 1000},
		{"file": "new", "seconds": 1, "command": []string{"touch", filepath.Join(dir, "started")}},
	} {
		if text, failed := call("profile", refused); !failed {
			t.Errorf("profile %v: got %q, want an error", refused, text)
		}
	}
	if text, failed := call("offcpu", map[string]any{"file": "new", "seconds": 1, "frequency": 99}); !failed {
		t.Errorf("offcpu at a frequency: got %q, want an error", text)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("got files %v, %v, want none besides those of this test", entries, err)
	}
}

// An assistant measures a command, and then asks about its profile.
func TestAssistantMeasures(t *testing.T) {
	testenv.Root(t)
	parallel(t)
	dir := t.TempDir()
	call := assistant(t, dir, "--allow-commands", "--max-duration=30")
	shares := compile(t, "shares.c", "shares")
	text, failed := call("profile", map[string]any{"file": "shares", "seconds": 30, "command": []string{shares}})
	var measured struct {
		File     string
		Messages string
		Report   report.Report
	}
	if err := json.Unmarshal([]byte(text), &measured); err != nil || failed || measured.File != "shares.pb.gz" || len(measured.Report.Functions) == 0 {
		t.Fatalf("profile: got %s, %v", text, err)
	}
	text, failed = call("ask", map[string]any{"file": "shares.pb.gz", "question": "functions"})
	var answer report.Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || failed || len(answer.Rows) == 0 || answer.Rows[0].Function != "most" {
		t.Errorf("functions: got %s, %v, want most first", text, err)
	}
	if text, failed := call("profile", map[string]any{"file": "shares", "seconds": 1}); !failed || !strings.Contains(text, "exists") {
		t.Errorf("got %q for a file that exists, want an error", text)
	}
}
