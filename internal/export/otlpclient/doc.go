// Package otlpclient sends profiles to an OpenTelemetry back end by OTLP/HTTP or OTLP/gRPC,
// as https://opentelemetry.io/docs/specs/otlp/ describes. It sends messages as package
// encode/otlp writes them: ProfilesData has the same fields as
// ExportProfilesServiceRequest.
package otlpclient
