// Package otelprofiles names the fields and attributes of OpenTelemetry's profiles that
// fulgur writes and reads: version 1.10 of opentelemetry-proto, and the semantic
// conventions. Field numbers changed in that version.
package otelprofiles

// Field numbers, by message. Sources:
// opentelemetry/proto/profiles/v1development/profiles.proto, common/v1/common.proto and
// resource/v1/resource.proto.
const (
	DataResource   = 1
	DataDictionary = 2

	DictionaryMapping   = 1
	DictionaryLocation  = 2
	DictionaryFunction  = 3
	DictionaryLink      = 4
	DictionaryString    = 5
	DictionaryAttribute = 6
	DictionaryStack     = 7

	ResourceProfilesResource = 1
	ResourceProfilesScope    = 2
	ResourceProfilesSchema   = 3

	ScopeProfilesScope   = 1
	ScopeProfilesProfile = 2

	ProfileSampleType = 1
	ProfileSample     = 2
	ProfileTime       = 3
	ProfileDuration   = 4
	ProfilePeriodType = 5
	ProfilePeriod     = 6
	ProfileID         = 7
	ProfileAttributes = 11

	LinkTraceID = 1
	LinkSpanID  = 2

	ValueTypeType = 1
	ValueTypeUnit = 2

	SampleStack      = 1
	SampleAttributes = 2
	SampleLink       = 3
	SampleValues     = 4

	MappingStart      = 1
	MappingLimit      = 2
	MappingOffset     = 3
	MappingFilename   = 4
	MappingAttributes = 5

	StackLocations = 1

	LocationMapping    = 1
	LocationAddress    = 2
	LocationLine       = 3
	LocationAttributes = 4

	LineFunction = 1
	LineLine     = 2
	LineColumn   = 3

	FunctionName       = 1
	FunctionSystemName = 2
	FunctionFilename   = 3
	FunctionStartLine  = 4

	AttributeKey   = 1 // of KeyValueAndUnit
	AttributeValue = 2
	AttributeUnit  = 3

	ResourceAttributes = 1

	ScopeName       = 1
	ScopeAttributes = 3

	KeyValueKey   = 1
	KeyValueValue = 2

	AnyString = 1
	AnyBool   = 2
	AnyInt    = 3
	AnyArray  = 5

	ArrayValues = 1
)
