package partition

// Middleware wraps a handler: to log, to measure, or to open a transaction around each
// message. See Wrap.
type Middleware func(next Handler) Handler

// unwrapper is a handler that says what it wraps.
type unwrapper interface {
	Unwrap() Handler
}

// Wrap returns a handler that calls middleware around h. The first one is the outermost: it
// sees a message first, and its result last.
//
// The middleware need not care for what h implements besides Handle (Preparer, Releaser, StateMover,
// CallHandler, Observer): the worker still finds it. What a middleware returns may implement one
// of these itself; that replaces what it wraps, and calls it if that is wanted. A handler that
// wraps another one without Wrap has a method Unwrap() Handler, so that the worker finds what
// the inner one implements.
func Wrap(h Handler, middleware ...Middleware) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = &wrapped{Handler: middleware[i](h), inner: h}
	}
	return h
}

// wrapped is what one middleware has made of a handler, most often a HandlerFunc that knows
// nothing of the optional interfaces of the inner one.
type wrapped struct {
	Handler
	inner Handler
}

// Unwrap and Middleware are for package partitiontest, which looks for optional interfaces, too.
func (w *wrapped) Unwrap() Handler     { return w.inner }
func (w *wrapped) Middleware() Handler { return w.Handler }

// find returns what implements T in a handler or in what it wraps, from the outside in.
func find[T any](h Handler) (T, bool) {
	for h != nil {
		if found, is := h.(T); is {
			return found, true
		}
		switch w := h.(type) {
		case *wrapped:
			// What a middleware returns may wrap something of its own.
			if found, is := find[T](w.Handler); is {
				return found, true
			}
			h = w.inner
		case unwrapper:
			h = w.Unwrap()
		default:
			h = nil
		}
	}
	var none T
	return none, false
}
