package sparsefw

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ShortName is "SUCCEEDED" for JOB_STATE_SUCCEEDED: the name of an enum's value without the enum's prefix, or
// its number where this version does not know it.
func ShortName(enum protoreflect.Enum) string {
	values := enum.Descriptor().Values()
	value := values.ByNumber(enum.Number())
	if value == nil {
		return strconv.Itoa(int(enum.Number()))
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.TrimPrefix(string(value.Name()), prefix)
}
