// Bindings of the kernels that training uses (training.cpp).
#pragma once

#include <nanobind/nanobind.h>

void bind_training(nanobind::module_& m);
