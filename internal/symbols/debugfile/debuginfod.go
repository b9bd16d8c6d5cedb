package debugfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"fulgur/internal/files/atomicfile"
	"fulgur/internal/symbols/elffile"
)

const (
	// A server must send minProgress bytes in each interval of DEBUGINFOD_TIMEOUT. elfutils'
	// client has the same values.
	defaultTimeout = 90 * time.Second
	minProgress    = 100 << 10
	// maxDownload bounds a file, in bytes, unless DEBUGINFOD_MAXSIZE is set.
	maxDownload = 8 << 30
)

// errMissing means that a server does not have the file.
var errMissing = errors.New("the server does not have the file")

// downloads fetches files from debuginfod servers like elfutils' client
// debuginfod-find(1): with the same environment variables, protocol and cache.
type downloads struct {
	servers []string
	client  *http.Client
	cache   *cache
	timeout time.Duration // 0 means none
	maxTime time.Duration // for a whole file; 0 means none
	maxSize int64         // of a file, in bytes
}

// newDownloads reads the environment. It returns nil if no servers are set.
func newDownloads(getenv func(string) string, client *http.Client) (*downloads, error) {
	d := &downloads{client: client, timeout: defaultTimeout, maxSize: maxDownload}
	for server := range strings.FieldsSeq(getenv("DEBUGINFOD_URLS")) {
		if strings.HasPrefix(server, "ima:") {
			continue // signature settings for the following servers, which we ignore
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("DEBUGINFOD_URLS: %q is not the address of an http server", server)
		}
		d.servers = append(d.servers, strings.TrimSuffix(strings.TrimRight(server, "/"), "/buildid"))
	}
	if len(d.servers) == 0 {
		return nil, nil
	}
	if d.client == nil {
		d.client = &http.Client{}
	}
	for _, limit := range []struct {
		name string
		set  func(int64)
	}{
		{"DEBUGINFOD_TIMEOUT", func(n int64) { d.timeout = seconds(n) }},
		{"DEBUGINFOD_MAXTIME", func(n int64) { d.maxTime = seconds(n) }},
		{"DEBUGINFOD_MAXSIZE", func(n int64) {
			if n > 0 {
				d.maxSize = n
			}
		}},
	} {
		if v := getenv(limit.name); v != "" {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not a number", limit.name, v)
			}
			limit.set(n)
		}
	}
	var err error
	d.cache, err = newCache(getenv)
	return d, err
}

// seconds returns n seconds, or 0, meaning no limit, if n is not positive or too large
// for a duration.
func seconds(n int64) time.Duration {
	if n <= 0 || n > int64(1<<63-1)/int64(time.Second) {
		return 0
	}
	return time.Duration(n) * time.Second
}

// download returns the debug file with the given build ID from the cache or a server, or
// nil.
func (f *Finder) download(ctx context.Context, s *search, id string) *File {
	if f.downloads == nil || id == "" {
		return nil
	}
	name, err := f.downloads.debugInfo(ctx, id)
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("debuginfod: %w", err))
		return nil
	}
	found := s.open("/", name, func(c *elffile.File) error { return sameBuildID(c, id) })
	if found == nil {
		// Do not use it again.
		f.downloads.cache.remove(name)
	}
	return found
}

// debugInfo returns the path of the debug file with the given build ID.
func (d *downloads) debugInfo(ctx context.Context, id string) (string, error) {
	name, err := d.cache.lookup(id)
	if name != "" || err != nil {
		return name, err
	}
	d.cache.cleanBriefly()
	var errs []error
	missing := true
	for _, server := range d.servers {
		name, err := d.get(ctx, server, id)
		if err == nil {
			return name, nil
		}
		missing = missing && errors.Is(err, errMissing)
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	if missing {
		errs = append(errs, d.cache.miss(id))
	}
	return "", errors.Join(errs...)
}

// get downloads the debug file with the given build ID from server into the cache and
// returns its path there.
func (d *downloads) get(ctx context.Context, server, id string) (name string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.maxTime > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.maxTime, fmt.Errorf("took longer than the %v of DEBUGINFOD_MAXTIME", d.maxTime))
		defer stop()
	}
	progress := new(atomic.Int64)
	if d.timeout > 0 {
		go d.watch(ctx, cancel, progress)
	}
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if errors.Is(err, context.Canceled) {
			err = interrupted{}
		}
	}()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/buildid/"+id+"/debuginfo", http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("User-Agent", "fulgur")
	response, err := d.client.Do(request)
	if err != nil {
		// The error already names the server, and the rest of the URL differs for each file.
		if of := new(url.Error); errors.As(err, &of) {
			err = of.Err
		}
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // the body has been read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", errMissing
	default:
		return "", fmt.Errorf("the server responded %s", response.Status)
	}
	if response.ContentLength > d.maxSize {
		return "", d.tooLarge()
	}
	return d.store(ctx, id, io.TeeReader(response.Body, progressWriter{progress}))
}

// interrupted is [context.Canceled] in the user's words.
type interrupted struct{}

func (interrupted) Error() string { return "interrupted" }
func (interrupted) Unwrap() error { return context.Canceled }

func (d *downloads) tooLarge() error {
	return fmt.Errorf("is larger than %d bytes (raise DEBUGINFOD_MAXSIZE)", d.maxSize)
}

// store writes a file into the cache, where it appears complete or not at all. It returns soon
// after ctx is done, even if the cache does not respond: then nothing reads from body, and so
// ctx ends for lack of progress.
func (d *downloads) store(ctx context.Context, id string, body io.Reader) (string, error) {
	file, err := d.cache.create(id)
	if err != nil {
		return "", err
	}
	written := make(chan error, 1)
	go func() { written <- d.write(file, body) }()
	select {
	case err = <-written:
	case <-ctx.Done():
		// Usually reading fails now, and nothing is left behind.
		select {
		case err = <-written:
		case <-time.After(abortWait):
			err = ctx.Err()
		}
	}
	if err != nil {
		return "", err
	}
	return d.cache.path(id), nil
}

// abortWait is the time that an interrupted download waits until its file is removed.
const abortWait = 2 * time.Second

// write writes a file of the cache and commits it.
func (d *downloads) write(file *atomicfile.File, body io.Reader) error {
	defer func() { _ = file.Abort() }()
	n, err := io.Copy(file, io.LimitReader(body, d.maxSize+1))
	switch {
	case err != nil:
		return err
	case n > d.maxSize:
		return d.tooLarge()
	case n == 0:
		return errors.New("the server sent an empty file") // an empty file in the cache means that no server has it
	}
	return file.Commit()
}

// watch cancels a download that makes no progress.
func (d *downloads) watch(ctx context.Context, cancel context.CancelCauseFunc, progress *atomic.Int64) {
	tick := time.NewTicker(d.timeout)
	defer tick.Stop()
	last := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := progress.Load()
		if now-last < minProgress {
			cancel(fmt.Errorf("the server sent less than %d KiB in %v (raise DEBUGINFOD_TIMEOUT)", minProgress>>10, d.timeout))
			return
		}
		last = now
	}
}

// progressWriter counts the bytes written.
type progressWriter struct{ n *atomic.Int64 }

func (w progressWriter) Write(b []byte) (int, error) {
	w.n.Add(int64(len(b)))
	return len(b), nil
}
