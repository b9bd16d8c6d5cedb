package firefoxtest

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

// set returns the JSON value v with the value at a path replaced by to, or removed if to
// is nil.
func set(v any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	switch v := v.(type) {
	case map[string]any:
		if len(path) == 1 && to == nil {
			delete(v, path[0])
			return v
		}
		v[path[0]] = set(v[path[0]], path[1:], to)
	case []any:
		i, _ := strconv.Atoi(path[0])
		v[i] = set(v[i], path[1:], to)
	}
	return v
}

// Validate finds a malformed value anywhere in a profile.
func TestValidate(t *testing.T) {
	whole, err := os.ReadFile("../testdata/timeline.json")
	if err != nil {
		t.Fatal(err)
	}
	Check(t, whole)
	for path, to := range map[string]any{
		"meta.preprocessedProfileVersion":    71,
		"meta.markerSchema":                  nil,
		"meta.categories.0.color":            "blue",
		"meta.categories.1.subcategories.0":  "",
		"meta.initialVisibleThreads.0":       99,
		"libs.0.breakpadId":                  "short",
		"libs.0.path":                        nil,
		"shared.stackTable.frame.1":          999,
		"shared.stackTable.prefixOffset.1":   2,
		"shared.stackTable.prefixOffset":     nil,
		"shared.frameTable.length":           1,
		"shared.frameTable.func.0":           -1,
		"shared.frameTable.subcategory.0":    7,
		"shared.frameTable.nativeSymbol.0":   99,
		"shared.frameTable.address.1":        1 << 54,
		"shared.frameTable.innerWindowID":    nil,
		"shared.frameTable.inlineDepth.0":    1,
		"shared.funcTable.isJS":              []any{},
		"shared.funcTable.resource.0":        99,
		"shared.funcTable.source.1":          -2,
		"shared.nativeSymbols.libIndex.0":    99,
		"shared.resourceTable.name.0":        9999,
		"shared.sources.content":             nil,
		"shared.sourceLocationTable":         nil,
		"shared.stringArray.1":               "",
		"threads.0.pid":                      nil,
		"threads.0.isMainThread":             false,
		"threads.0.tid":                      43,
		"threads.0.samples.stack.0":          999,
		"threads.0.samples.timeDeltas.2":     -1,
		"threads.0.samples.weight.0":         "x",
		"threads.0.samples.weightType":       "furlongs",
		"threads.0.markers":                  nil,
		"threads.0.markers.name.0":           999,
		"threads.0.markers.endTime.2":        0,
		"threads.0.markers.data.2.type":      "Unknown",
		"threads.0.markers.data.2.op":        9999,
		"threads.0.markers.data.2.cause":     map[string]any{"stack": 9999},
		"counters.0.mainThreadIndex":         99,
		"counters.0.pid":                     "1",
		"counters.0.samples.count":           []any{},
		"counters.0.display.tooltipRows":     nil,
		"counters.0.samples.timeDeltas.1":    -4,
		"threads.0.samples.threadCPUDelta":   []any{},
		"threads.0.pausedRanges":             nil,
		"shared.frameTable.originalLocation": []any{},
		"shared.nativeSymbols.functionSize":  nil,
		"threads.0.markers.category.0":       99,
		"threads.0.markers.phase.0":          4,
		"counters.0.display.graphType":       nil,
		"shared.frameTable.category.0":       99,
		"shared.frameTable.lib.0":            99,
		"shared.stackTable.length":           -1,
		"meta.interval":                      0,
		"counters.0.description":             nil,
		"shared.funcTable.name.0":            9999,
		"shared.nativeSymbols.name.0":        9999,
		"shared.sources.filename.0":          9999,
		"threads.0.samples.length":           1,
		"threads.0.markers.data":             []any{},
		"meta.initialSelectedThreads.0":      -1,
	} {
		t.Run(path, func(t *testing.T) {
			var v any
			if err := json.Unmarshal(whole, &v); err != nil {
				t.Fatal(err)
			}
			broken, err := json.Marshal(set(v, strings.Split(path, "."), to))
			if err != nil {
				t.Fatal(err)
			}
			p, err := Parse(broken)
			if err == nil {
				err = p.Validate()
			}
			if err == nil {
				t.Errorf("got no error for %s = %v", path, to)
			}
		})
	}
}
