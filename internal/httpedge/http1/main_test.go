package http1

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discardLog discards the error log of servers.
var discardLog = log.New(io.Discard, "", 0)
