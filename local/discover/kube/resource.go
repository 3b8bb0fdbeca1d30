package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// resourceWatch keeps the objects of one resource that a selector matches. It is a cache.ListerWatcher whose outcomes are
// recorded: the informer retries by itself and reports only some failures.
type resourceWatch struct {
	resource  schema.GroupVersionResource
	namespace string
	options   metav1.ListOptions // the selector
	client    dynamic.ResourceInterface
	log       *slog.Logger
	informer  cache.SharedIndexInformer
	cancel    context.CancelFunc
	done      chan struct{}

	mu           sync.Mutex
	failingSince time.Time // zero while in contact
	loggedKind   string    // the kind of failure that was logged
	failures     map[string]float64
}

// startResourceWatch starts a watch, which ends with ctx or stop. changed is called after each change of its objects.
func startResourceWatch(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource, namespace string, options metav1.ListOptions, log *slog.Logger, changed func()) (*resourceWatch, error) {
	w := &resourceWatch{
		resource: r, namespace: namespace, options: options, client: client.Resource(r).Namespace(namespace),
		log: log.With("resource", groupResource(r), "namespace", namespace), done: make(chan struct{}), failures: map[string]float64{},
	}
	w.informer = cache.NewSharedIndexInformerWithOptions(w, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{})
	for _, err := range []error{
		w.informer.SetTransform(func(from any) (any, error) { return decodeObject(r, from) }),
		// Outcomes are recorded by List and Watch; the default handler would log each retry.
		w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}),
	} {
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", r.Resource, err)
		}
	}
	note := func(any) { changed() }
	if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, _ any) { changed() }, DeleteFunc: note}); err != nil {
		return nil, fmt.Errorf("watching %s: %w", r.Resource, err)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		w.informer.RunWithContext(ctx)
	}()
	go func() { // an empty result causes no event
		if cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
			changed()
		}
	}()
	return w, nil
}

// stop ends the watch and waits for it.
func (w *resourceWatch) stop() {
	w.cancel()
	<-w.done
}

// isSynced reports whether the first list has arrived.
func (w *resourceWatch) isSynced() bool { return w.informer.HasSynced() }

// objects returns the objects that are known.
func (w *resourceWatch) objects() []*cachedObject {
	var out []*cachedObject
	for _, o := range w.informer.GetStore().List() {
		if c, ok := o.(*cachedObject); ok {
			out = append(out, c)
		}
	}
	return out
}

// IsWatchListSemanticsUnSupported makes the informer list before it watches, instead of requesting both in one call,
// which only recent API servers serve.
func (w *resourceWatch) IsWatchListSemanticsUnSupported() bool { return true }

// List is ListWithContext without a context.
func (w *resourceWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without a context.
func (w *resourceWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), options)
}

// ListWithContext lists the selected objects.
func (w *resourceWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.LabelSelector, options.FieldSelector = w.options.LabelSelector, w.options.FieldSelector
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.client.List(limited, options)
	w.recordOutcome(ctx, err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// WatchWithContext begins a watch of the selected objects.
func (w *resourceWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector, options.FieldSelector = w.options.LabelSelector, w.options.FieldSelector
	events, err := w.client.Watch(ctx, options)
	w.recordOutcome(ctx, err)
	return events, err
}

// recordOutcome records the outcome of a list or watch, and logs when a failure of another kind begins, and when all
// failures end.
func (w *resourceWatch) recordOutcome(ctx context.Context, err error) {
	if ctx.Err() != nil || err != nil && isExpectedEnd(err) {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		if !w.failingSince.IsZero() {
			w.log.Info("the Kubernetes API server answers again", "after", now.Sub(w.failingSince).Round(time.Millisecond))
		}
		w.failingSince, w.loggedKind = time.Time{}, ""
		return
	}
	kind, advice := explainFailure(w.resource, w.namespace, err)
	w.failures[kind]++
	if w.failingSince.IsZero() {
		w.failingSince = now
	}
	if kind != w.loggedKind {
		w.loggedKind = kind
		w.log.Warn("workers in Kubernetes cannot be read: those known stay in force, no new ones are found", "kind", kind, "error", clipMessage(err), "advice", advice)
	}
}

// addStats adds the counts of this watch.
func (w *resourceWatch) addStats(st *Stats, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, n := range w.failures {
		st.Failures[k] += n
	}
	if !w.failingSince.IsZero() {
		st.OutOfContact = max(st.OutOfContact, now.Sub(w.failingSince))
	}
}
