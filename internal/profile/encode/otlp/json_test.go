package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

// TestWriteJSON compares the output with the JSON of package protojson. It differs in what
// OTLP changes: enumerations and IDs.
func TestWriteJSON(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(), "threads": encodetest.Threads(), "owners": encodetest.Owners(),
		"hostile": encodetest.Hostile(), "empty": encodetest.Empty(),
	} {
		text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(written(t, p))
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		ids := 0
		each(want, func(object map[string]any) {
			for _, name := range []string{"profileId", "traceId", "spanId"} {
				id, ok := object[name].(string)
				if !ok {
					continue
				}
				b, err := base64.StdEncoding.DecodeString(id)
				if err != nil || len(b) == 0 {
					t.Fatalf("got ID %q, error %v", id, err)
				}
				object[name] = hex.EncodeToString(b)
				ids++
			}
		})
		if ids == 0 {
			t.Errorf("%s: got no ID", name)
		}
		var out bytes.Buffer
		if err := WriteJSON(&out, p, Options{}); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-protojson +written):\n%s", name, diff)
		}
	}
}

// each calls f for each object in a JSON value.
func each(value any, f func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		f(value)
		for _, v := range value {
			each(v, f)
		}
	case []any:
		for _, v := range value {
			each(v, f)
		}
	}
}
