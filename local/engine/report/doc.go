// Package report defines what engines report about themselves as plain values: their load, their models, and what they
// can do with an answer that another worker began. It has no dependency on the calls that fetch these values.
package report
