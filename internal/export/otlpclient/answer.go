package otlpclient

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers; sources: opentelemetry/proto/collector/profiles/v1development/
// profiles_service.proto and google/rpc/status.proto.
const (
	responsePartialSuccess = 1 // of ExportProfilesServiceResponse
	partialRejected        = 1 // of ExportProfilesPartialSuccess
	partialMessage         = 2
	statusMessage          = 2 // of Status
)

// parseAnswer parses an ExportProfilesServiceResponse. A malformed one is empty: the server
// has accepted the profiles.
func parseAnswer(message []byte) (a Answer) {
	partial, _ := field(message, responsePartialSuccess)
	text, _ := field(partial, partialMessage)
	_, rejected := field(partial, partialRejected)
	return Answer{Rejected: max(int64(rejected), 0), Message: string(text)}
}

// parseStatus returns the message of a Status.
func parseStatus(message []byte) string {
	text, _ := field(message, statusMessage)
	return string(text)
}

// field returns the last value of a field: bytes, or a number. It ignores all data after a
// malformed field.
func field(message []byte, number protowire.Number) (data []byte, n uint64) {
	for len(message) > 0 {
		num, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			break
		}
		message = message[size:]
		switch {
		case num == number && kind == protowire.BytesType:
			if v, size := protowire.ConsumeBytes(message); size >= 0 {
				data = v
			}
		case num == number && kind == protowire.VarintType:
			if v, size := protowire.ConsumeVarint(message); size >= 0 {
				n = v
			}
		}
		if size = protowire.ConsumeFieldValue(num, kind, message); size < 0 {
			break
		}
		message = message[size:]
	}
	return data, n
}
