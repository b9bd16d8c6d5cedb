package naming

import (
	"testing"

	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/runtimes/known"
)

// Frames of each runtime have a type in OpenTelemetry's profiles.
func TestFrameTypes(t *testing.T) {
	for kind, runtime := range known.All {
		if module := "[" + runtime.Name() + "]"; otelprofiles.RuntimeFrames[module] == "" {
			t.Errorf("no frame type for module %s of kind %d", module, kind)
		}
	}
}
