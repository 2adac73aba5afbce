# Is valid, with a warning about quoted references.

variable "services" {
  type = any
}

variable "directory" {
  type = string
}

resource "terraform_data" "a" {
}

resource "terraform_data" "b" {
  depends_on = ["terraform_data.a"]
}
