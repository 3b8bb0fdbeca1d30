package wire

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discard is for what servers complain of.
var discard = log.New(io.Discard, "", 0)
