package delivery

import (
	"strings"
	"testing"
	"time"
)

// TestReports checks that changes of the outcome are logged, and nothing else.
func TestReports(t *testing.T) {
	r := reports{again: "the back end accepts profiles again"}
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		outcome outcome
		want    string
	}{
		{accepted, ""}, {retried, "no answer"}, {retried, ""}, {refused, "no answer"}, {refused, ""},
		{accepted, "the back end accepts profiles again"}, {accepted, ""}, {rejected, "no answer"}, {accepted, "the back end accepts profiles again"},
	} {
		if got := r.message(step.outcome, "no answer", now); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

// TestReportsFlapping checks that a back end that fails at every other message causes few messages,
// in pairs.
func TestReportsFlapping(t *testing.T) {
	r := reports{again: "the back end accepts profiles again"}
	now := time.Unix(1000, 0)
	failures, recoveries, last := 0, 0, ""
	const hours = 5
	for range hours * 3600 / 20 { // two attempts in 20 s
		for _, o := range []outcome{retried, accepted} {
			text := r.message(o, "no answer", now)
			switch {
			case strings.HasPrefix(text, "no answer"):
				failures, last = failures+1, text
			case text != "":
				recoveries++
			}
			now = now.Add(10 * time.Second)
		}
	}
	if failures < hours*maxReports || failures > (hours+1)*maxReports || recoveries != failures || !strings.Contains(last, "for an hour") {
		t.Errorf("got %d failures and %d recoveries in %d hours, the last one %q", failures, recoveries, hours, last)
	}
}

// An outage that begins when too many failures were logged is logged later.
func TestReportsOutage(t *testing.T) {
	r := reports{again: "the back end accepts profiles again"}
	now := time.Unix(1000, 0)
	for range maxReports {
		r.message(retried, "no answer", now)
		r.message(accepted, "", now)
	}
	logged := 0
	for range 24 * 360 {
		now = now.Add(10 * time.Second)
		if r.message(retried, "no answer", now) != "" {
			logged++
		}
	}
	if logged != 1 {
		t.Errorf("an outage of a day was logged %d times, want once", logged)
	}
}

// A new cause of the same outcome is logged. A cause is not new if only its numbers differ.
func TestReportsCause(t *testing.T) {
	r, now := reports{again: "again"}, time.Now()
	for _, step := range []struct {
		outcome       outcome
		failure, want string
	}{
		{refused, "HTTP status 500 Internal Server Error: dropped 12 samples", "HTTP status 500 Internal Server Error: dropped 12 samples"},
		{refused, "HTTP status 500 Internal Server Error: dropped 7 samples", ""},
		{refused, "HTTP status 404 Not Found: dropped 7 samples", "HTTP status 404 Not Found: dropped 7 samples"},
		{accepted, "", "again"},
		{accepted, "", ""},
	} {
		if got := r.message(step.outcome, step.failure, now); got != step.want {
			t.Errorf("%q: got %q, want %q", step.failure, got, step.want)
		}
	}
}
