// Command lab is a real Kubernetes control plane in one process, for tests: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler are the real ones, kubelets are KWOK's, and kube-state-metrics and a Prometheus watch it all.
//
//	lab serve --dir DIR          runs until its standard input is closed or it is told to stop
//	lab kubectl ARGS...          is kubectl, of the same version
//	lab kubelet ARGS...          is a real kubelet, of the same version
//
// When everything is up it prints one line of JSON (Ready) to its standard output. It listens on 127.0.0.1 only, logs to DIR/lab.log
// and keeps everything it writes below DIR.
//
// The API is also how a test plays the machines. A Node that is created becomes Ready if its label says so, and its pods run:
//
//	lab.muster.dev/kubelet=up          healthy
//	lab.muster.dev/kubelet=not-ready   alive, and reports NotReady
//	any other value, or no label       no kubelet: a new node never becomes Ready, a Ready one is found Unknown some seconds later
//
// Pods take their whole grace period to end, and those of Jobs complete at once.
//
// With --evictions a controller of EvictionRequests runs. Kubernetes 1.37 serves them and has none.
//
// With --packages DIR, a folder with containerd, runc and CNI plugins, there are real nodes as
// well: machines in namespaces, on a network of their own, that run their user data, with
// containerd and this program's kubelet (packages machine and network). They are started and
// stopped by HTTP on DIR/machines.sock. A kubelet joins with the token that Ready states: it
// is authorized as a node and gets its certificate signed. Real nodes need Linux and root.
// With --containerd DIR they have the container runtime in that folder in place of the packages'.
// With --cloud-init DIR, a folder of its packages, they may boot by systemd: cloud-init asks the
// metadata service for the user data, and they can reboot.
// They import the container images that --image names, mount the folder of --share, and
// reach what --forward names at a port of their gateway.
//
// Not there: kube-proxy and so Services, DNS, volumes of the cloud, and shutdown that kubelets
// wait for.
//
// It is a module of its own because it is large: building it takes minutes, so it is built once and kept (package internal/lab of the
// main module), and nothing in the main module depends on it.
package main
