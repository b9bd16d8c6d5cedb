package main

import (
	"testing"

	"fulgur/internal/session"
)

// Filters of threads and labels make a measurement read what they select by.
func TestLiveFilters(t *testing.T) {
	for name, c := range map[string]struct {
		filters           liveFilters
		perThread, labels bool
		count             int
	}{
		"none":    {},
		"process": {filters: liveFilters{taskFilters: taskFilters{Process: []string{"redis", "12"}}}, count: 2},
		"thread":  {filters: liveFilters{taskFilters: taskFilters{Thread: []string{"12"}}}, perThread: true, count: 1},
		"label":   {filters: liveFilters{taskFilters: taskFilters{Label: []string{"pod=web"}}, stackFilters: stackFilters{Hide: []string{"main"}}}, labels: true, count: 2},
	} {
		var o session.Options
		list, err := c.filters.live(&o)
		if err != nil || len(list) != c.count || o.PerThread != c.perThread || o.Labels != c.labels || o.Owners != c.labels {
			t.Errorf("%s: got %v with threads %v, labels %v, owners %v, %v", name, list, o.PerThread, o.Labels, o.Owners, err)
		}
	}
	if _, err := (liveFilters{taskFilters: taskFilters{Label: []string{"pod"}}}).live(new(session.Options)); err == nil {
		t.Error("a label without an expression: got no error")
	}
}
