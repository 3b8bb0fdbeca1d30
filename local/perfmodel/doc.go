// Package perfmodel estimates how fast each worker is and how long answers will be.
//
// EstimatePrior gives the rates of a worker from its GPU type and model, before its first answer. A RateLearner
// corrects them with each answer by recursive least squares; UpdateCohorts compares workers of one type, and
// DecayToCohort ends pessimistic estimates that no answer can correct. Rates is the result, in seconds and tokens.
//
// OutputLengths predicts the length of an answer, FirstTokenLatency and PredictionError measure times to first token,
// ArrivalStats the prompts that return to a worker, and Overcommit how much KV cache beyond its total may be reserved.
//
// The package has no clock, goroutine or lock; each value has one writer.
package perfmodel
