package flame_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/testenv"
)

// Pages apply filters as package filter does: both have the results of the same table.
func TestFilters(t *testing.T) {
	node := testenv.Tool(t, "node")
	const cases = "../../filter/testdata/cases.json"
	data, err := os.ReadFile(cases)
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Profile string
		Cases   []struct {
			Filters []string
			Want    string
		}
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	p, _, err := decode.Read(t.Context(), strings.NewReader(table.Profile), "cases")
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := flame.WriteHTML(&page, p, flame.Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(page.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"testdata/filters.js", path, cases}
	for _, script := range []string{"data", "format", "functions", "names", "prune", "search", "filter", "times"} {
		args = append(args, "page/"+script+".js")
	}
	cmd := exec.Command(node, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil || len(got) != len(table.Cases) {
		t.Fatalf("got %d results, %v, want %d", len(got), err, len(table.Cases))
	}
	for i, c := range table.Cases {
		if got[i] != c.Want {
			t.Errorf("%q: got\n%s\nwant\n%s", c.Filters, got[i], c.Want)
		}
	}
}
