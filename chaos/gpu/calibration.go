package gpu

// calibrationTable returns the calibrated pairs of GPU and model, BF16 weights, from measurements on real engines
// where available and from the data sheet elsewhere (T4, L4, L40S and B200: within 30 %).
func calibrationTable() []WorkerProfile {
	return []WorkerProfile{
		{GPU: "T4", Model: "Qwen2.5-3B", TP: 1, WeightsGiB: 5.7, BaseMS: 27.19, TokenUS: 250.4, AttentionUS: 18.33, ContextUS: 192.0, SequenceUS: 6, KVBytes: 36864, Blocks: 11181},
		{GPU: "L4", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 69.89, TokenUS: 258.4, AttentionUS: 13.37, ContextUS: 728.18, SequenceUS: 6, KVBytes: 131072, Blocks: 1885},
		{GPU: "L4", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 65.87, TokenUS: 241.6, AttentionUS: 10.24, ContextUS: 318.58, SequenceUS: 6, KVBytes: 57344, Blocks: 5214},
		{GPU: "L40S", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 24.53, TokenUS: 73.2, AttentionUS: 3.79, ContextUS: 252.84, SequenceUS: 6, KVBytes: 131072, Blocks: 12161},
		{GPU: "A100-80G", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 10.62, TokenUS: 72.2, AttentionUS: 3.73, ContextUS: 107.14, SequenceUS: 6, KVBytes: 131072, Blocks: 28174},
		{GPU: "A100-80G", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 10.03, TokenUS: 67.5, AttentionUS: 2.86, ContextUS: 46.87, SequenceUS: 6, KVBytes: 57344, Blocks: 65302},
		{GPU: "A100-80G", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 25.99, TokenUS: 211.0, AttentionUS: 4.67, ContextUS: 66.96, SequenceUS: 6, KVBytes: 327680, Blocks: 30418},
		{GPU: "H100", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 6.62, TokenUS: 22.8, AttentionUS: 1.18, ContextUS: 65.21, SequenceUS: 6, KVBytes: 131072, Blocks: 28155},
		{GPU: "H100", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 6.26, TokenUS: 21.3, AttentionUS: 0.9, ContextUS: 28.53, SequenceUS: 6, KVBytes: 57344, Blocks: 65260},
		{GPU: "H100", Model: "Qwen3-32B", TP: 2, WeightsGiB: 61.0, BaseMS: 15.2, TokenUS: 52.6, AttentionUS: 2.35, ContextUS: 65.21, SequenceUS: 6, KVBytes: 262144, Blocks: 20192},
		{GPU: "H100", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 16.73, TokenUS: 66.5, AttentionUS: 1.47, ContextUS: 40.76, SequenceUS: 6, KVBytes: 327680, Blocks: 30388},
		{GPU: "H100", Model: "Llama-3.1-70B", TP: 8, WeightsGiB: 131.4, BaseMS: 9.52, TokenUS: 38.4, AttentionUS: 0.74, ContextUS: 20.38, SequenceUS: 6, KVBytes: 327680, Blocks: 87690},
		{GPU: "H200", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 4.74, TokenUS: 22.8, AttentionUS: 1.18, ContextUS: 45.51, SequenceUS: 6, KVBytes: 131072, Blocks: 56121},
		{GPU: "H200", Model: "Llama-3.1-70B", TP: 2, WeightsGiB: 131.4, BaseMS: 22.43, TokenUS: 115.3, AttentionUS: 2.94, ContextUS: 56.89, SequenceUS: 6, KVBytes: 327680, Blocks: 24110},
		{GPU: "H200", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 12.38, TokenUS: 66.5, AttentionUS: 1.47, ContextUS: 28.44, SequenceUS: 6, KVBytes: 327680, Blocks: 75134},
		{GPU: "H200", Model: "Qwen3-32B", TP: 2, WeightsGiB: 61.0, BaseMS: 11.19, TokenUS: 52.6, AttentionUS: 2.35, ContextUS: 45.51, SequenceUS: 6, KVBytes: 262144, Blocks: 48157},
		{GPU: "B200", Model: "Llama-3.1-70B", TP: 2, WeightsGiB: 131.4, BaseMS: 14.39, TokenUS: 50.7, AttentionUS: 1.29, ContextUS: 34.13, SequenceUS: 6, KVBytes: 327680, Blocks: 38192},
	}
}
