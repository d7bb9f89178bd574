# Generated from deploy/cloudformation/muster.yaml: go -C deploy/terraform/generate run .

variable "cluster_name" {
  description = "Name of the cluster. Its instances and subnets carry the tag muster.dev/cluster with this value."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,39}$", var.cluster_name))
    error_message = "cluster_name must match [a-z][a-z0-9-]{0,39}."
  }
}

variable "run_as" {
  description = "lambda: two functions. daemon: a queue with the interruption events and the policies for the role of `muster nodes run`."
  type        = string
  default     = "lambda"

  validation {
    condition     = contains(["lambda", "daemon"], tostring(var.run_as))
    error_message = "run_as must be one of lambda, daemon."
  }
}

variable "kube_api_url" {
  description = "https URL of the Kubernetes API, reachable from the functions' subnets."
  type        = string
  default     = ""
}

variable "prometheus_url" {
  description = "URL of Prometheus, reachable from the functions' subnets. Empty if the document of Settings has SIGNALS=kubernetes."
  type        = string
  default     = ""
}

variable "reference_path" {
  description = "Path in SSM's parameter store. PATH/CLUSTER/kube-ca and PATH/CLUSTER/kube-token are read by Muster; PATH/CLUSTER/agent-token by nodes, never by the functions."
  type        = string
  default     = "/muster"

  validation {
    condition     = can(regex("^(/[A-Za-z0-9_.-]+)+$", var.reference_path))
    error_message = "reference_path must match (/[A-Za-z0-9_.-]+)+."
  }
}

variable "secret_arns" {
  description = "ARNs of secrets of Secrets Manager that settings refer to. Empty if there are none."
  type        = list(string)
  default     = []
}

variable "launch_template_id" {
  description = "Launch template of the workers."
  type        = string

  validation {
    condition     = can(regex("^lt-[0-9a-f]+$", var.launch_template_id))
    error_message = "launch_template_id must match lt-[0-9a-f]+."
  }
}

variable "launch_template_version" {
  description = "Its version. A number, so that a repeated launch is the same launch."
  type        = number

  validation {
    condition     = var.launch_template_version >= 1
    error_message = "launch_template_version must be 1 or more."
  }
}

variable "node_role_arn" {
  description = "Role in the launch template's instance profile, which Muster has to pass to the workers."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:iam::[0-9]{12}:role/.+$", var.node_role_arn))
    error_message = "node_role_arn must match arn:[a-z-]+:iam::[0-9]{12}:role/.+."
  }
}

variable "worker_subnet_ids" {
  description = "Subnets in which workers are launched, of every zone that is to have some."
  type        = list(string)
}

variable "instance_types" {
  description = "Types to launch, most wanted first, separated by commas."
  type        = string
  default     = "t3.large,t3a.large,m5.large"
}

variable "spot" {
  description = "Whether Spot is tried before On-Demand."
  type        = string
  default     = "true"

  validation {
    condition     = contains(["true", "false"], tostring(var.spot))
    error_message = "spot must be one of true, false."
  }
}

variable "prices" {
  description = "aws: current prices, which a tick reads and is permitted to; the functions' subnets then need a way to the AWS Price List. table: Muster's own."
  type        = string
  default     = "table"

  validation {
    condition     = contains(["table", "aws"], tostring(var.prices))
    error_message = "prices must be one of table, aws."
  }
}

variable "min_workers" {
  description = "Fewest workers."
  type        = number
  default     = 2

  validation {
    condition     = var.min_workers >= 0
    error_message = "min_workers must be 0 or more."
  }
}

variable "max_workers" {
  description = "Most workers."
  type        = number
  default     = 10

  validation {
    condition     = var.max_workers >= 1
    error_message = "max_workers must be 1 or more."
  }
}

variable "k3s_url" {
  description = "https URL of the K3s server that workers join."
  type        = string
  default     = ""
}

variable "volume_key_arn" {
  description = "ARN of the KMS key that encrypts the workers' volumes, if it is one of your own."
  type        = string
  default     = ""
}

variable "code_bucket" {
  description = "Bucket with the functions' package, which is a zip of cmd/muster-lambda built as bootstrap."
  type        = string
  default     = ""
}

variable "code_key" {
  description = "The package's key in that bucket."
  type        = string
  default     = ""
}

variable "architecture" {
  description = "What the package was built for."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], tostring(var.architecture))
    error_message = "architecture must be one of arm64, x86_64."
  }
}

variable "settings" {
  description = "Every other setting of the functions, as one JSON or YAML mapping, or ssm:PATH/CLUSTER/NAME:VERSION, the parameter that holds it: {\"CPU_UP\": 0.8, \"SIZING\": \"fit\", \"DRAIN_LOCAL_STORAGE\": \"evict\"}. `muster nodes settings` lists them. A setting that has a parameter of its own is refused here, unless it says the same."
  type        = string
  default     = "{}"

  validation {
    condition     = length(var.settings) <= 2400
    error_message = "settings must have at most 2400 characters."
  }
}

variable "function_subnet_ids" {
  description = "Subnets of the functions, with a way to the Kubernetes API, to Prometheus and, by endpoints or NAT, to AWS."
  type        = list(string)
  default     = []
}

variable "function_security_group_ids" {
  description = "Security groups of the functions."
  type        = list(string)
  default     = []
}

variable "log_retention_days" {
  description = "Days for which the functions' logs are kept."
  type        = number
  default     = 30

  validation {
    condition     = contains(["1", "3", "5", "7", "14", "30", "60", "90", "120", "150", "180", "365"], tostring(var.log_retention_days))
    error_message = "log_retention_days must be one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365."
  }
}

variable "event_log_days" {
  description = "Days for which the event log's events are kept."
  type        = number
  default     = 30

  validation {
    condition     = var.event_log_days >= 1
    error_message = "event_log_days must be 1 or more."
  }

  validation {
    condition     = var.event_log_days <= 3650
    error_message = "event_log_days must be 3650 or less."
  }
}

variable "alarm_topic_arn" {
  description = "SNS topic that alarms are sent to. Empty to have them without notification."
  type        = string
  default     = ""
}
