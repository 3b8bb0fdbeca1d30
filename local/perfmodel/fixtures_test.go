package perfmodel

import (
	"math/rand/v2"
	"time"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
