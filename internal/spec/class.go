package spec

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Class is the urgency of a request. A lower value is served first.
type Class uint8

// The three classes.
const (
	Interactive Class = iota
	Standard
	Batch
	NumClasses = 3
)

var classNames = [NumClasses]string{"interactive", "standard", "batch"}

// String returns the class's name in specs, headers and metrics.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// ParseClass parses a class name. The empty string is Standard.
func ParseClass(s string) (Class, error) {
	if s == "" {
		return Standard, nil
	}
	for i, n := range classNames {
		if s == n {
			return Class(i), nil
		}
	}
	return Standard, &strict.HintedError{Reason: fmt.Sprintf("unknown class %q", s), Hint: "write interactive, standard or batch"}
}

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the class's name.
func (c *Class) UnmarshalText(b []byte) error {
	v, err := ParseClass(string(b))
	if err != nil {
		return err
	}
	*c = v
	return nil
}
