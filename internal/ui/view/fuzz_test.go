package view

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/symbolize"
)

func FuzzSymbolServer(f *testing.F) {
	f.Add(`{"jobs":[{"memoryMap":[["work","0"]],"stacks":[[[0,1]]]}]}`)
	f.Add(`{"memoryMap":[["work","000000000000000000000000000000000"]],"stacks":[[[0,18446744073709551615]]]}`)
	f.Add(`{"debugName":"work","debugId":"000000000000000000000000000000000","moduleOffset":"0x1","file":"/etc/passwd"}`)
	f.Add(`{"debugName":"work","debugId":"000000000000000000000000000000000","startAddress":"0xffffffffffffffff","size":"0xffffffffffffffff","continueUntilFunctionEnd":true}`)
	handler := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, resource := range []string{"/symbolicate/v5", "/source/v1", "/asm/v1"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, resource, strings.NewReader(body)))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest || !json.Valid(w.Body.Bytes()) || strings.Contains(w.Body.String(), "root:x:") {
				t.Fatalf("%s: got %d %s; want JSON without the file's content", resource, w.Code, w.Body)
			}
		}
	})
}

// fuzzed returns a symbol server for this program, named "work" and without a build
// ID.
func fuzzed(f *testing.F) http.Handler {
	exe, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	link := filepath.Join(f.TempDir(), "work")
	if err := os.Symlink(exe, link); err != nil {
		f.Fatal(err)
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	b.Mapping(profile.Mapping{Path: link})
	library := code.NewLibrary(f.Context(), nil, symbolize.Options{})
	f.Cleanup(func() { library.Close() })
	mux := http.NewServeMux()
	newSymbolServer(b.Profile(profile.Meta{}, profile.Losses{}), library).register(mux)
	return mux
}
