package debugfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// server is a debuginfod server that counts requests.
type server struct {
	*httptest.Server
	requests atomic.Int32
}

func newServer(t testing.TB, handler http.HandlerFunc) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if r.Method != http.MethodGet {
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// serve returns a handler that serves one file.
func serve(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/buildid/"+id+"/debuginfo" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}
}

// missing is a handler without files.
func missing(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// failing is a handler that always responds with an error.
func failing(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "out of order", http.StatusServiceUnavailable)
}

func TestDownload(t *testing.T) {
	right := image(t, id, debugInfo("right"))
	wrong := image(t, "eeff0011", debugInfo("wrong"))
	chunked := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // hides the length
		serve(right)(w, r)
	}
	for _, tt := range []struct {
		name    string
		vars    map[string]string
		servers []http.HandlerFunc
		ok      bool
		problem string
		// again is the total number of requests after a second search.
		again int
		// empty is set if the cache records that no server has the file.
		empty bool
	}{
		{"found", nil, []http.HandlerFunc{serve(right)}, true, "", 1, false},
		{"without a length", nil, []http.HandlerFunc{chunked}, true, "", 1, false},
		{"at the second server", nil, []http.HandlerFunc{missing, serve(right)}, true, "", 2, false},
		{"the first fails", nil, []http.HandlerFunc{failing, serve(right)}, true, "", 2, false},
		{"at no server", nil, []http.HandlerFunc{missing, missing}, false, "the server does not have the file", 2, true},
		{"another server fails", nil, []http.HandlerFunc{missing, failing}, false, "the server responded 503", 4, false},
		{"another file", nil, []http.HandlerFunc{serve(wrong)}, false, `build ID is "eeff0011", not aabbccdd`, 2, false},
		{"an empty file", nil, []http.HandlerFunc{serve(nil)}, false, "empty file", 2, false},
		{"too large", map[string]string{"DEBUGINFOD_MAXSIZE": "100"}, []http.HandlerFunc{serve(right)}, false, "larger than 100 bytes", 2, false},
		{"too large without a length", map[string]string{"DEBUGINFOD_MAXSIZE": "100"}, []http.HandlerFunc{chunked}, false, "larger than 100 bytes", 2, false},
		{"no limits", map[string]string{"DEBUGINFOD_MAXSIZE": "0", "DEBUGINFOD_TIMEOUT": "-1", "DEBUGINFOD_MAXTIME": "0"}, []http.HandlerFunc{serve(right)}, true, "", 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var servers []*server
			urls := "ima:ignore "
			for _, handler := range tt.servers {
				s := newServer(t, handler)
				servers = append(servers, s)
				urls += s.URL + "/ "
			}
			cache := filepath.Join(t.TempDir(), "cache")
			vars := map[string]string{"DEBUGINFOD_URLS": urls, "DEBUGINFOD_CACHE_PATH": cache}
			maps.Copy(vars, tt.vars)
			name := filepath.Join(cache, id, "debuginfo")
			want := ""
			if tt.ok {
				want = name
			}
			b := binaryAt(t, "", image(t, id))
			f, err := newFinder(t, Config{Getenv: environment(vars)}).Debug(t.Context(), b)
			found(t, f, err, "/", want, tt.problem)
			f, err = newFinder(t, Config{Getenv: environment(vars)}).Debug(t.Context(), b)
			if tt.empty {
				tt.problem = "no server had the file at "
			}
			found(t, f, err, "/", want, tt.problem)

			requests := 0
			for _, s := range servers {
				requests += int(s.requests.Load())
			}
			if requests != tt.again {
				t.Errorf("got %d requests, want %d", requests, tt.again)
			}
			entries, _ := os.ReadDir(filepath.Dir(name))
			info, err := os.Stat(name)
			switch {
			case len(entries) > 1:
				t.Errorf("got %v in the cache, want at most one file", entries)
			case (err == nil) != (tt.ok || tt.empty):
				t.Errorf("the cache's file: %v", err)
			case err == nil && (info.Size() == 0) != tt.empty:
				t.Errorf("got %d bytes in the cache's file, want an empty one: %v", info.Size(), tt.empty)
			}
		})
	}
}

// TestStalled checks that the finder gives up a server that makes no progress, but not a slow
// one.
func TestStalled(t *testing.T) {
	right := image(t, id, debugInfo("right"))
	stalled := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(right[:10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, tt := range []struct {
		name             string
		timeout, maxTime time.Duration
		handler          http.HandlerFunc
		problem          string
	}{
		{"during the body", time.Millisecond, 0, stalled, "less than 100 KiB in 1ms"},
		{"before the response", time.Millisecond, 0, silent, "less than 100 KiB in 1ms"},
		{"above the maximum time", 0, time.Millisecond, stalled, "longer than the 1ms of DEBUGINFOD_MAXTIME"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.handler)
			finder := newFinder(t, Config{Getenv: environment(map[string]string{"DEBUGINFOD_URLS": s.URL, "DEBUGINFOD_CACHE_PATH": t.TempDir()})})
			finder.downloads.timeout, finder.downloads.maxTime = tt.timeout, tt.maxTime
			f, err := finder.Debug(t.Context(), binaryAt(t, "", image(t, id)))
			found(t, f, err, "", "", tt.problem)
		})
	}
}

// TestNoDownload checks that nothing is requested without a configured server.
func TestNoDownload(t *testing.T) {
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		t.Errorf("got request %s, want none", r.URL)
		return nil, http.ErrNotSupported
	})}
	for _, urls := range []string{"", "  ", "ima:enforcing"} {
		finder := newFinder(t, Config{Client: client, Getenv: environment(map[string]string{"DEBUGINFOD_URLS": urls})})
		f, err := finder.Debug(t.Context(), binaryAt(t, "", image(t, id)))
		found(t, f, err, "", "", "not found")
	}
	finder := newFinder(t, Config{Client: client, Getenv: environment(map[string]string{"DEBUGINFOD_URLS": "http://localhost", "HOME": t.TempDir()})})
	f, err := finder.Debug(t.Context(), binaryAt(t, "", image(t, "")))
	found(t, f, err, "", "", "not found")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		vars    map[string]string
		problem string
	}{
		{map[string]string{"DEBUGINFOD_URLS": "ftp://a"}, `"ftp://a" is not the address of an http server`},
		{map[string]string{"DEBUGINFOD_URLS": "http://"}, `"http://" is not the address`},
		{map[string]string{"DEBUGINFOD_URLS": "localhost:8002"}, `"localhost:8002" is not the address`},
		{map[string]string{"DEBUGINFOD_URLS": "http://a", "DEBUGINFOD_TIMEOUT": "1s", "HOME": "/"}, `DEBUGINFOD_TIMEOUT: "1s" is not a number`},
		{map[string]string{"DEBUGINFOD_URLS": "http://a"}, "set DEBUGINFOD_CACHE_PATH"},
	} {
		if _, err := New(Config{Getenv: environment(tt.vars)}); err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%v: got error %v, want one that contains %q", tt.vars, err, tt.problem)
		}
	}

	d, err := newDownloads(environment(map[string]string{
		"DEBUGINFOD_URLS": "http://a/ https://b/x", "DEBUGINFOD_TIMEOUT": "5", "DEBUGINFOD_MAXTIME": "9223372036854775807", "HOME": "/",
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(d.servers, " ") != "http://a https://b/x" || d.timeout != 5*time.Second || d.maxTime != 0 || d.maxSize != maxDownload {
		t.Errorf("got %+v, want the given servers and limits", d)
	}
}

func TestCachePlace(t *testing.T) {
	home := t.TempDir()
	old := tree{".debuginfod_client_cache/x": ""}.write(t)
	for _, tt := range []struct {
		vars map[string]string
		want string
	}{
		{map[string]string{"DEBUGINFOD_CACHE_PATH": "/c", "XDG_CACHE_HOME": "/x", "HOME": home}, "/c"},
		{map[string]string{"XDG_CACHE_HOME": "/x", "HOME": home}, "/x/debuginfod_client"},
		{map[string]string{"HOME": home}, home + "/.cache/debuginfod_client"},
		{map[string]string{"XDG_CACHE_HOME": "/x", "HOME": old}, old + "/.debuginfod_client_cache"},
	} {
		if c, err := newCache(environment(tt.vars)); err != nil || c.dir != tt.want {
			t.Errorf("%v: got %q, %v; want %q", tt.vars, c.dir, err, tt.want)
		}
	}
}

// TestCacheTimes ages the cache's files by their timestamps.
func TestCacheTimes(t *testing.T) {
	age := func(name string, by time.Duration) {
		t.Helper()
		then := time.Now().Add(-by)
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
	c := &cache{dir: tree{
		missFile:          "100\n",
		id + "/debuginfo": "", "bb/debuginfo": "used", "cc/debuginfo": "unused", "cc/keep": "not ours",
		"dd/executable": "unused", "notes/debuginfo": "not ours",
	}.write(t)}

	if _, err := c.lookup(id); err == nil {
		t.Error("got no error, want the cached failure")
	}
	age(c.path(id), 101*time.Second)
	if _, err := c.lookup(id); err != nil {
		t.Errorf("after the expiry: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(c.path(id))); err == nil {
		t.Error("the cached failure is still there")
	}

	for _, name := range []string{"bb/debuginfo", "cc/debuginfo", "cc/keep", "dd/executable", "notes/debuginfo"} {
		age(filepath.Join(c.dir, name), 8*24*time.Hour)
	}
	if _, err := c.lookup("bb"); err != nil {
		t.Fatal(err)
	}
	exist := func(want string) {
		t.Helper()
		var all []string
		for _, name := range []string{"bb/debuginfo", "cc/debuginfo", "cc/keep", "dd", "notes/debuginfo"} {
			if _, err := os.Stat(filepath.Join(c.dir, name)); err == nil {
				all = append(all, name)
			}
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("got %s in the cache, want %s", got, want)
		}
	}
	c.clean() // creates the file with the cleanup interval
	c.clean()
	exist("bb/debuginfo cc/debuginfo cc/keep dd notes/debuginfo")
	age(filepath.Join(c.dir, cleanFile), 25*time.Hour)
	c.clean()
	exist("bb/debuginfo cc/keep notes/debuginfo")
}

// TestCacheNoAnswer checks that the finder does not wait for a cache whose file system does not
// respond, and that it goes on without it.
func TestCacheNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	s := newServer(t, serve(image(t, id, debugInfo("right"))))
	file, stop := fusetest.Mount(t, fusetest.File(t, "x"))
	stop()
	dead := filepath.Dir(file)
	for _, tt := range []struct{ variable, value string }{
		{"DEBUGINFOD_CACHE_PATH", dead},
		{"XDG_CACHE_HOME", dead},
		{"HOME", dead},
	} {
		t.Run(tt.variable, func(t *testing.T) {
			vars := environment(map[string]string{"DEBUGINFOD_URLS": s.URL, tt.variable: tt.value})
			done := make(chan [2]error, 1)
			b := binaryAt(t, "", image(t, id))
			host := t.TempDir()
			go func() {
				f, err := New(Config{Getenv: vars, Host: host, Release: "test"})
				if err != nil {
					done <- [2]error{err, err}
					return
				}
				_, first := f.Debug(t.Context(), b)
				_, second := f.Debug(t.Context(), b)
				done <- [2]error{first, second}
			}()
			got := testenv.Receive(t, done, "the finder waits for the cache")
			for _, err := range got {
				if !errors.Is(err, ErrNotFound) || !errors.Is(err, safeopen.ErrNoAnswer) || !strings.Contains(err.Error(), "debuginfod: open "+dead) {
					t.Errorf("got error %v, want %v and %v", err, ErrNotFound, safeopen.ErrNoAnswer)
				}
			}
			if fmt.Sprint(got[0]) != fmt.Sprint(got[1]) {
				t.Errorf("got errors %q and %q, want the same, which is reported once", got[0], got[1])
			}
		})
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("got %d requests, want 0", n)
	}
}

// TestStuck checks that a download ends with its context, even if it cannot go on: the cache may
// stop responding meanwhile.
func TestStuck(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hang := make(chan struct{})
	defer close(hang)
	d := &downloads{cache: &cache{dir: t.TempDir()}, maxSize: maxDownload}
	stored := make(chan error, 1)
	go func() {
		_, err := d.store(ctx, id, readerFunc(func([]byte) (int, error) {
			cancel()
			<-hang
			return 0, io.EOF
		}))
		stored <- err
	}()
	if err := testenv.Receive(t, stored, "the download goes on after its context"); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestSharedCache checks that elfutils' client and the finder use each other's downloads.
func TestSharedCache(t *testing.T) {
	client := testenv.Tool(t, "debuginfod-find")
	right := image(t, id, debugInfo("right"))
	for _, oursFirst := range []bool{true, false} {
		s := newServer(t, serve(right))
		dir := t.TempDir()
		want := filepath.Join(dir, id, "debuginfo")
		ours := func() {
			finder := newFinder(t, Config{Getenv: environment(map[string]string{"DEBUGINFOD_URLS": s.URL, "DEBUGINFOD_CACHE_PATH": dir})})
			f, err := finder.Debug(t.Context(), binaryAt(t, "", image(t, id)))
			found(t, f, err, "/", want, "")
		}
		if oursFirst {
			ours()
		}
		cmd := exec.CommandContext(t.Context(), client, "debuginfo", id)
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+s.URL, "DEBUGINFOD_CACHE_PATH="+dir)
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("debuginfod-find: got %q, %v; want %s", out, err, want)
		}
		if !oursFirst {
			ours()
		}
		if n := s.requests.Load(); n != 1 {
			t.Errorf("got %d requests, want 1", n)
		}
	}
}

// TestLocal checks that a local search requests nothing.
func TestLocal(t *testing.T) {
	s := newServer(t, serve(image(t, id, debugInfo("right"))))
	vars := map[string]string{"DEBUGINFOD_URLS": s.URL, "DEBUGINFOD_CACHE_PATH": t.TempDir()}
	finder := newFinder(t, Config{Getenv: environment(vars)})
	f, err := finder.Local().Debug(t.Context(), binaryAt(t, "", image(t, id)))
	found(t, f, err, "", "", "not found")
	if n := s.requests.Load(); n != 0 {
		t.Errorf("got %d requests, want 0", n)
	}
}
